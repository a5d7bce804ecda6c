"""The report: one HTML file about many records that opens from disk."""
