"""What the calls of the service mean for each kind of model. Protobuf stops here."""
