"""What a trial is made of: seeds, models, inputs, cotangents and the situations that a candidate is called in."""
