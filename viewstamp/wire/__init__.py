"""Bytes on connections and on disk: batches, frames, requests. Pure: no sockets, files or clocks."""
