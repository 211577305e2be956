"""Images resized, rearranged and read: the operators that know height and width."""
