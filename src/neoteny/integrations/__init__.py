"""Age-weighted replay inside other people's frameworks: a thin file for each."""
