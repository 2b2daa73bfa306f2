"""An app with tasks, for the tests of everything that runs tasks."""
