"""Models: graphs of operations that an application builds."""
