"""Makes what trials need: seeds, models, inputs, cotangents and ways to call a candidate."""
