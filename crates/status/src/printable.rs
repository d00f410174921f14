//! Texts that are safe to print. Identities come from peers: nothing in them may steer the terminal.

use esplanade_pki::text::steers;

/// Replaces characters that steer.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if steers(c) { '\u{fffd}' } else { c })
        .collect()
}
