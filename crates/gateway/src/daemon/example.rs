//! A configuration for tests.

use std::path::Path;

use crate::config::{Loaded, load_text};

/// Returns a configuration with one connection, whose children are these.
pub(super) fn site(children: &str) -> Loaded {
    let text = format!(
        "connections {{ site {{
            local_addrs = 192.0.2.1
            remote_addrs = 192.0.2.2
            local {{ auth = psk\n id = a.example }}
            remote {{ auth = psk\n id = b.example }}
            children {{ {children} }} }} }}
         secrets {{ ike {{ secret = s }} }}"
    );
    let loaded = load_text(Path::new("test.conf"), &text);
    loaded.unwrap_or_else(|errors| panic!("{errors}"))
}
