"""Who reads it: pure renderers and the history store. Reports never decide."""
