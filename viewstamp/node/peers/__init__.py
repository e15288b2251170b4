"""A member's side of the connections between members.

| file | owns | knows nothing of |
| --- | --- | --- |
| ``pool`` | which members this one talks to: connections, addresses, whose messages count | what the messages say |
| ``connection`` | one outgoing connection to another member: dialling, the handshake, sending | what the messages say |
| ``peer_client`` | a question to another member, and its answer: a connection of its own | why it is asked |
| ``codec`` | consensus messages as frames | connections |
| ``identity`` | the id of a node in its group, also after its disk was lost | connections |
"""
