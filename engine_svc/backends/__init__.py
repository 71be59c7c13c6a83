"""The gRPC calls of the service, for a model that generates and for one that embeds. Protobuf stops here."""
