//! Texts that others have written and that people read.

/// Tells whether a character steers a terminal, ends a line, or turns the direction of text.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::GroupName;

    #[test]
    fn names_of_others_steer_nothing() {
        let name: GroupName = "sales\u{202e}\u{1b}[2J\u{e9}".parse().unwrap();
        assert_eq!(name.to_string(), "sales\u{fffd}\u{fffd}[2J\u{e9}");
        assert!(!name.to_string().contains(steers));
    }
}
