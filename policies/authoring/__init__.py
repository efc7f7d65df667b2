"""Writing policies: drafts, publishing, test cases, import and export."""
