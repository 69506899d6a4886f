"""The admission webhook: rules on objects before they are kept, what is filled in, and the certificate to serve it."""
