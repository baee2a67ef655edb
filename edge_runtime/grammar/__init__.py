"""Grammars: what an answer may be, the masks of its tokens, an ending that fits, the places of anchors."""
