"""gRPC to the three services: dataclasses in, protobuf on the wire, dataclasses out. Protobuf stops here."""
