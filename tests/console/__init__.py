"""The operator's pages, the live feed, the commands and the REST API of operators.

Pages and rights with Django's test client; what only a browser shows (keyboard, layout, pages that
move, nobody typing JSON) in Chromium, in files that are long. test_live_feed has the rules of live
pages without a socket, test_live_socket that they hold over one. Rules of what is shown or done
are proven in the room they belong to: here is who may, what is asked first, what is noted.

one_of_each.py and rows.py fill a database, browser.py and window.py open it.
"""
