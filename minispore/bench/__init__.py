"""`minispore bench`: measurements that come with the package, so that anybody can make them on their own machine."""
