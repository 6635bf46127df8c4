"""What the demo plays after the index is built: one module a scene."""
