"""Both client runtimes over real nodes; what one of them does alone is tested beside its source.

R numbers are those of docs/reference/runtime.md, P numbers those of p2p.md.
- test_python, test_programs, test_conversations, test_chat: languages and pages talk with each
  other
- test_p2p*: direct connections, in Python first; in Chromium and Node.js what they alone do
- test_two_domains, test_bridged, test_no_tokens_abroad, test_data_objects: two domains
- test_packages, test_types, test_names: what is published
"""
