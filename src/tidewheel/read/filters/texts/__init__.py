"""What conditions ask of texts, where these lie."""
