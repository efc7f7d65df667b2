"""The protostubs, their catalogue and the newcomer's page: cases 52 to 54 of
docs/reference/messages.md.

- test_python_stub, protostub.test.mjs: the life of a stub, step by step; one file of cases
- test_stubs, test_javascript_stub: both stubs, in each of their runtimes, over a real node
- test_catalogue, test_idp_proxy, test_wheel: what is offered; test_landing*: the page, in Chromium
"""
