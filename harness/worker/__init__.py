"""The process that runs untrusted code. Shares only the wire and records with the judge."""
