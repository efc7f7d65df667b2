"""Invitations to conversations that the caller's domain hosts; they wait at the callee's domain.

Two nodes and two runtimes take part. No link between the nodes does (federation/): the callee's
runtime has a session at each of them (docs/reference/runtime.md, section 8.5).

    1  runtime/python/invitations.py   Invitations.receive, send
         both users are logged in at home. The callee's runtime asks for a push endpoint, which his
         card names; the caller's finds it there (the same in runtime/js/src/invitations.js)
    2  invitations/service.py          InvitationService._send
         the caller's node signs what is said, stores a digest of its name, and posts it
    3  invitations/wire.py             read
         the form in which it is posted, the only thing that the two nodes have to agree on
    4  invitations/endpoints.py        leave, take
         the callee's node stores it, answers 201, and keeps it until it was delivered
    5  invitations/delivery.py         InvitationDelivery._hand_over
         the worker that has the callee's session delivers it, once the row is its own; his runtime
         believes what the caller's domain has signed (`Invitations._checked`). If his application
         accepts, its message makes the runtime load the caller's stub, no other code than was
         signed, and connect to the caller's node: there he is a visitor
    6  invitations/guests.py           Guests.may_say, look
         where that node requires an identity and cannot verify his, he is a guest: his first
         message names the invitation, whoever does that first has it, and he reaches what he was
         invited to until that ends. Of others the node does not note that they have accepted
"""
