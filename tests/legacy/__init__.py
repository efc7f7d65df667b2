"""Legacy networks: users of an XMPP or SIP server and of this domain meet by a gateway.

Case numbers are those of legacy networks, also where a test of another folder has one.
- test_calls: the half of a call that faces the runtime, for any network
- test_jingle: descriptions of sessions; long: beside those of `stanza` and of Chromium
- test_xmpp_calls: calls of an XMPP network beside that server
- test_connection: a server that is slower than the gateway
- test_xmpp: the link, its stream, addresses and limits against a small server (fake_xmpp.py), with
  a node that is played (linked.py)
- test_sip: SIP's parser, registration, messages and calls beside a small proxy (fake_proxy.py)
- test_sip_media: calls at a small rtpengine (fake_rtpengine.py), and what a worker leaves there
- test_costs: what a message takes of the processor in the gateway alone
- test_script_network: a network by script, with the cases 85 and 86 of scripts
- test_rows: the page, REST and the command, and what the gateway keeps in the database
- long: test_prosody has a real node, a real prosody (prosody.py) and real clients (slixmpp), the
  server killed and frozen; test_kamailio the same of SIP, with phones (kamailio.py), sipp and
  rtpengine; test_two_gateways has two nodes that are each other's network;
  test_takeover has two workers; test_outages has ten outages of each server, at night
"""
