"""Problems and templates to start from: each evaluates to PASSED as it is written."""
