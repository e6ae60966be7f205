"""From runs to a verdict: reads run directories, and writes a page, figures and tables."""
