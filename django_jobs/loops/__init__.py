"""The loops: each a tick that does what is due now; threads and signals are the runner's."""
