"""Invitations to conversations that the caller's domain hosts; they wait at the callee's domain.

Two nodes and two runtimes take part (docs/reference/runtime.md, section 8.5). No federation is
needed between the nodes: the callee's runtime has a session at each of them.

    1  runtime/python/invitations.py   Invitations.receive, send
         both users are logged in at home. The callee's runtime asks for a push endpoint; the
         caller's reads it in the callee's card (runtime/js/src/invitations.js does the same)
    2  invitations/service.py          InvitationService._send
         called by the identity manager: signs it, stores a digest of its name, and posts it
    3  invitations/wire.py             read
         the form in which it is posted, the only thing that the two nodes have to agree on
    4  invitations/endpoints.py        leave, take
         the callee's node stores it, tells its workers by the control outbox, and answers 201
    5  invitations/delivery.py         InvitationDelivery._hand_over
         the worker that has the callee's session takes the row and delivers it. The runtime
         checks that the caller's domain has signed it (`Invitations._checked`). If the application
         accepts, its message makes the runtime load the stub of the caller's domain, if its code is
         what was signed, and open a session at the caller's node: there it is a visitor
    6  invitations/guests.py           Guests.may_say, look
         if that node requires an identity and cannot verify the callee's, the callee is a guest:
         the first runtime that names the invitation reaches what it was invited to until that ends.
         Nobody else's acceptance is noted by the node. The caller's application answers the message
"""
