//! Comma-separated values: fields in quotes where they need them, quotes in them doubled.

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The line that it begins at, from 1.
    pub(crate) line: usize,
    pub(crate) fields: Vec<String>,
}

/// All records of `text`; lines with nothing in them are none. An error is about the quotes, and says where.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while !rest.is_empty() {
        let started = line;
        let mut fields = Vec::new();
        loop {
            let (field, after) = take_field(rest).map_err(|what| format!("line {started}: {what}"))?;
            line += field.matches('\n').count();
            fields.push(field);
            if let Some(after) = after.strip_prefix(',') {
                rest = after;
                continue;
            }
            rest = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or(after);
            line += 1;
            break;
        }
        if fields != [""] {
            rows.push(Row { line: started, fields });
        }
    }
    Ok(rows)
}

/// A field, and what comes after it: a comma, the end of a line, or nothing.
fn take_field(text: &str) -> Result<(String, &str), &'static str> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (field, after) = text.split_at(end);
        return match field.strip_suffix('\r') {
            Some(bare) if after.starts_with('\n') || after.is_empty() => Ok((bare.to_owned(), after)),
            _ => Ok((field.to_owned(), after)),
        };
    };
    let mut field = String::new();
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        let Some(more) = after.strip_prefix('"') else {
            let ends = after.is_empty() || after.starts_with([',', '\n']) || after.starts_with("\r\n");
            return if ends { Ok((field, after)) } else { Err("there is more after the closing quote of a field") };
        };
        field.push('"');
        rest = more;
    }
}

/// Appends the record and the end of its line.
pub(crate) fn push_row(out: &mut String, fields: &[&str]) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) || (fields.len() == 1 && field.is_empty()) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(field);
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<Vec<String>> {
        parse(text).unwrap().into_iter().map(|row| row.fields).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rows: [&[&str]; 5] = [&["g", "t", "0", "42"], &["a,b", "say \"x\"", "", " "], &["two\nlines", "\r\n", "größe"], &[""], &["\""]];
        let mut text = String::new();
        rows.iter().for_each(|row| push_row(&mut text, row));
        assert!(text.starts_with("g,t,0,42\n\"a,b\",\"say \"\"x\"\"\",, \n"), "{text}");
        let read = fields(&text);
        // A record of one empty field is a line with nothing in it to other readers, and so to this one.
        assert_eq!(read, rows.iter().filter(|row| **row != [""]).map(|row| row.to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn other_writers_are_understood() {
        assert_eq!(fields("\u{feff}\"g\",t,0,1\r\n\r\n\ng,t,1,2"), [["g", "t", "0", "1"], ["g", "t", "1", "2"]]);
        assert_eq!(fields("a,\n"), [["a", ""]]);
        assert_eq!(fields("a\"b,c\n"), [["a\"b", "c"]]);
        assert_eq!(fields(""), Vec::<Vec<String>>::new());
        let rows = parse("\"a\nb\",c\nd\n").unwrap();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn quotes_that_do_not_match_are_refused_with_their_line() {
        assert_eq!(parse("a\n\"b").unwrap_err(), "line 2: a quote is not closed");
        assert_eq!(parse("\"a\"b,c").unwrap_err(), "line 1: there is more after the closing quote of a field");
    }
}
