"""HTTP besides the pages: proxies, security headers, API schema, the landing page."""
