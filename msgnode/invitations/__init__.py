"""Invitations to conversations that the caller's domain hosts; they wait at the callee's domain.

Two nodes take part, and each file belongs to one of them:

    1  the callee opens a push endpoint                    callee's node  service, endpoints
    2  the caller's runtime asks to invite                 caller's node  service, guests
    3  the invitation is posted there                      callee's node  endpoints, wire
    4  it is delivered to the callee's runtime             callee's node  delivery
    5  that connects to the caller's node, as a guest,
       and is accepted with its first message              caller's node  guests
    6  the right ends: by time, or by who has invited      caller's node  guests
"""
