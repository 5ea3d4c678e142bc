//! Rust text told apart into code, comments and literals, by the few lexical rules that this needs.
//!
//! A parser crate would do more than asked and make the checks depend on what they check. The lexer blanks what a rule
//! does not look at and keeps every line break, so that line numbers stay true.

/// What a byte of Rust text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Code.
    Code,
    /// A comment, documentation included.
    Comment,
    /// The inside of a string or character literal.
    Literal,
}

/// `text` with everything blanked that is not of one of `kinds`.
pub(super) fn keep(text: &str, kinds: &[Kind]) -> String {
    let classes = classify(text.as_bytes());
    let bytes = text.bytes().zip(&classes);
    let kept =
        bytes.map(|(byte, kind)| if byte == b'\n' || kinds.contains(kind) { byte } else { b' ' }).collect();
    String::from_utf8(kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// `text` before its unit tests: a `#[cfg(test)]` module stands at the end of a file in this house.
pub(super) fn before_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |end| &text[..end])
}

/// The lines that hold `word` as a whole identifier.
pub(super) fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let boundary = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let found = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            boundary(line[..at].chars().next_back()) && boundary(line[at + word.len()..].chars().next())
        })
    };
    text.lines().enumerate().filter(|(_, line)| found(line)).map(|(index, _)| index + 1).collect()
}

fn classify(text: &[u8]) -> Vec<Kind> {
    let mut kinds = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (kind, end) = token(text, at);
        kinds.resize(end.min(text.len()), kind);
        at = end;
    }
    kinds
}

/// The kind and the end of the comment, literal or single byte of code at `at`.
fn token(text: &[u8], at: usize) -> (Kind, usize) {
    let rest = &text[at..];
    let fresh = at == 0 || !(text[at - 1].is_ascii_alphanumeric() || text[at - 1] == b'_');
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return (Kind::Comment, at + end);
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, at + block_comment(rest));
    }
    if rest[0] == b'"' {
        return (Kind::Literal, at + quoted(rest, b'"'));
    }
    if fresh && let Some(length) = raw_string(rest) {
        return (Kind::Literal, at + length);
    }
    // A quote opens a character literal unless it opens a lifetime, which has no closing quote after one character.
    if rest[0] == b'\'' {
        let character = std::str::from_utf8(&rest[1..rest.len().min(6)])
            .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
            .ok()
            .and_then(|text| text.chars().next());
        if let Some(character) = character
            && (character == '\\' || rest.get(1 + character.len_utf8()) == Some(&b'\''))
        {
            return (Kind::Literal, at + quoted(rest, b'\''));
        }
    }
    (Kind::Code, at + 1)
}

/// The length of a nested block comment.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a literal that ends at an unescaped `quote`.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` and so on, if that is what stands here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'c')).count().min(1);
    if rest.get(prefix) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &rest[prefix + 1..open]].concat();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
    Some((open + 1 + end + close.len()).min(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! doc\nlet a: &'a str = \"un//safe\\\" x\"; /* b /* c */ d */ unsafe\nlet c = '\"'; let r = r#\"q\" // z\"#; b'\\''; end";

    #[test]
    fn code_comments_and_literals_are_told_apart() {
        let code = keep(TEXT, &[Kind::Code]);
        assert_eq!(
            code.split_whitespace().collect::<Vec<_>>().join(" "),
            "let a: &'a str = ; unsafe let c = ; let r = ; b ; end"
        );
        let comments = keep(TEXT, &[Kind::Comment]);
        assert_eq!(comments.split_whitespace().collect::<Vec<_>>().join(" "), "//! doc /* b /* c */ d */");
        assert!(keep(TEXT, &[Kind::Literal]).contains("un//safe"));
        assert_eq!(code.lines().count(), TEXT.lines().count());
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(lines_with("unsafe_code\nunsafe {\nmy_unsafe\n(unsafe)", "unsafe"), [2, 4]);
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for text in ["\"abc", "'\\", "r##\"abc\"#", "/* a", "b'", "'"] {
            assert_eq!(keep(text, &[]).len(), text.len(), "{text}");
        }
    }
}
