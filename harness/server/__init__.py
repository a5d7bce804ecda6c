"""The server behind ``serve``: HTTP requests, the pump between queue and judge, tokens, OpenAPI."""
