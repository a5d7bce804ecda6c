"""What a solution's text tells before it runs: evidence for a reader, which never decides a verdict."""
