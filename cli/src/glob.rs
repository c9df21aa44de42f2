//! Patterns of names: `*` stands for any characters, `?` for one.

/// Whether all of `text` matches.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // The last star, and where what it stands for ends: it takes one more character when the rest does not match.
    let mut star = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, end)) = star else { return false };
                star = Some((star_at, end + 1));
                at = star_at + 1;
                from = end + 1;
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("a*", "a"),
            ("console-*", "console-consumer-1"),
            ("*-1", "a-1-1"),
            ("a*b*c", "aXbXbXc"),
            ("?", "ß"),
            ("a?c", "abc"),
            ("**a", "a"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", ""), ("?", ""), ("a*", "ba"), ("*-1", "a-1-2"), ("a*b*c", "aXbX"), ("a?c", "ac"), ("A", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(150)));
        assert!(!matches(&format!("{}b", "a*".repeat(50)), &"a".repeat(20_000)));
    }
}
