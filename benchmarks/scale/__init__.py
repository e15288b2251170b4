"""How many appends does a topic with streams take on 3 to 300 nodes, and when is group 0 the limit?"""
