"""The Graph Connector: who somebody is, whatever domains know him."""
