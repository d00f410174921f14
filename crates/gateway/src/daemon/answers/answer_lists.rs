//! Lists in the answers to commands. One message of the control socket holds them, however many names there are.

use crate::vici::Section;

/// Most bytes of a list. An answer has three at most, and a text of the length that the encoding allows.
const LIST_BYTES_MAX: usize = 128 * 1024;
/// The length of an item, in bytes.
const ITEM_HEADER_LEN: usize = 3;

/// Adds the first items of a list, and the number of those that are left out as `key-more`.
pub(in crate::daemon) fn add_list(message: &mut Section, key: &str, all: &[String]) {
    let mut len = 0;
    let fits = |item: &&String| {
        len += item.len() + ITEM_HEADER_LEN;
        len <= LIST_BYTES_MAX
    };
    let first: Vec<_> = all.iter().take_while(fits).collect();
    let more = all.len() - first.len();
    message.list(key, first);
    if more > 0 {
        message.set(&format!("{key}-more"), more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vici::ControlPacket;

    #[test]
    fn one_message_holds_the_lists_of_many_names() {
        let many: Vec<_> = (0..100_000).map(|n| format!("site-{n}/net")).collect();
        let mut message = Section::new();
        for key in ["added", "changed", "removed"] {
            add_list(&mut message, key, &many);
        }
        message.set("errmsg", "x".repeat(100_000));
        let listed = message.items("added").count();
        let more = message.text("added-more").unwrap().parse::<usize>();
        assert!(listed > 5000, "{listed}");
        assert_eq!(more, Ok(100_000 - listed));
        assert!(ControlPacket::Response(message).encode().is_ok());
        let mut message = Section::new();
        add_list(&mut message, "added", &many[..2]);
        assert_eq!(message.items("added").count(), 2);
        assert_eq!(message.text("added-more"), None);
    }
}
