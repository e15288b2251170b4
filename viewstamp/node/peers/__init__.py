"""A member's side of the connections between members.

| file | owns | does not depend on |
| --- | --- | --- |
| ``pool`` | the connections to members, their addresses, the accepted sources of messages | the content of messages |
| ``connection`` | one outgoing connection to another member: dialling, handshake, sending | the content of messages |
| ``moved`` | members at another address than this log has | the reason of the move |
| ``peer_client`` | a request to another member on a connection of its own | the purpose of the request |
| ``question`` | the handshake with a node that is only asked for its WELCOME | the purpose of the question |
| ``probe`` | whether the members run a release that can read a kind of record | the purpose of the question |
| ``codec`` | consensus messages as frames | connections |
| ``identity`` | the id of a node in its group, also after its disk was lost | connections |
"""
