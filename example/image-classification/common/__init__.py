"""What the image-classification examples share: data, networks, options, reports."""
