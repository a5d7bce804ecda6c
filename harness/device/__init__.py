"""The devices that evaluations run on, and the state that they were in."""
