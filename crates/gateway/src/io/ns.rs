//! Namespaces of this process and its threads.
