//! Text for screens and pages of a given width.

/// The words of a text, over lines of no more than `to` letters; a word that is longer is left
/// whole.
pub fn wrap(text: &str, to: usize) -> Vec<String> {
    let letters = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if letters(line) + 1 + letters(word) <= to => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text without what could move a cursor or change a colour.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printable_cannot_command_the_terminal() {
        assert_eq!(printable("a'b\x1b[2J\n"), "a'b?[2J?");
    }

    #[test]
    fn wrapping_breaks_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 4), ["incomprehensible"]);
        assert_eq!(wrap("", 4), [""; 0]);
    }
}
