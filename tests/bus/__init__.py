"""The path of a message in one worker: admission, policies, routes, delivery, answers, record.

Units with fakes (tests/fakes.py) and no event loop where none is needed; the mutants are tried
against them (`make mutants`). tests/stage/bus.py has a pipeline between two sessions and its parts.

- test_message_path executes the path as docs/message-path.md numbers it, in a whole worker
- test_routes and test_table: where a message goes; test_ownership: who may say it
- test_pipeline, test_whole_path, test_record: what becomes of it, is answered and noted
- test_delivery, test_many_recipients: to one, to many, at what cost
- test_replies, test_answers: components; test_response_guard, test_hand_back: whose the answer is

Over a socket the same is tested once for each numbered case, in tests/conformance.
"""
