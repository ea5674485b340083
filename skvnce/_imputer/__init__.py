"""The base class of imputers, what a fit returns, and wrappers of models."""
