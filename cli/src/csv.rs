//! Comma-separated values: fields in quotes where they need them, quotes in them doubled.

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The line that it begins at, from 1.
    pub(crate) line: usize,
    pub(crate) fields: Vec<String>,
}

/// Columns of a record, at most: what has more is not read on.
const FIELDS_MAX: usize = 64;

/// The records of a text, one after the other.
pub(crate) struct Rows<'t> {
    rest: &'t str,
    line: usize,
}

/// The records of `text`; lines with nothing in them are none. An error is about quotes or far too many columns, says where,
/// and is the last.
pub(crate) fn rows(text: &str) -> Rows<'_> {
    Rows { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
}

impl Rows<'_> {
    fn row(&mut self) -> Result<Row, String> {
        let started = self.line;
        let mut fields = Vec::new();
        loop {
            if fields.len() == FIELDS_MAX {
                return Err(format!("line {started}: it has more than {FIELDS_MAX} columns"));
            }
            let (field, after) = take_field(self.rest).map_err(|what| format!("line {started}: {what}"))?;
            self.line += field.matches('\n').count();
            fields.push(field);
            if let Some(after) = after.strip_prefix(',') {
                self.rest = after;
                continue;
            }
            self.rest = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or(after);
            self.line += 1;
            return Ok(Row { line: started, fields });
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match self.row() {
                Ok(row) if row.fields == [""] => {}
                Ok(row) => return Some(Ok(row)),
                Err(what) => {
                    self.rest = "";
                    return Some(Err(what));
                }
            }
        }
        None
    }
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
        // A mark of the byte order at the start of a file is none of its text.
        if field.contains([',', '"', '\n', '\r']) || field.starts_with('\u{feff}') || (fields.len() == 1 && field.is_empty()) {
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

    fn parse(text: &str) -> Result<Vec<Row>, String> {
        rows(text).collect()
    }

    fn fields(text: &str) -> Vec<Vec<String>> {
        parse(text).unwrap().into_iter().map(|row| row.fields).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rows: [&[&str]; 6] = [
            &["g", "t", "0", "42"],
            &["\u{feff}g", "\u{feff}"],
            &["a,b", "say \"x\"", "", " "],
            &["two\nlines", "\r\n", "größe"],
            &[""],
            &["\""],
        ];
        let mut text = String::new();
        rows.iter().for_each(|row| push_row(&mut text, row));
        assert!(text.starts_with("g,t,0,42\n\"\u{feff}g\",\"\u{feff}\"\n\"a,b\",\"say \"\"x\"\"\",, \n"), "{text}");
        let read = fields(&text);
        // A record of one empty field is a line with nothing in it to other readers, and so to this one.
        assert_eq!(read, rows.iter().filter(|row| **row != [""]).map(|row| row.to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_that_begins_like_a_mark_of_the_byte_order_survives() {
        let mut text = String::new();
        push_row(&mut text, &["\u{feff}g", "t"]);
        assert_eq!(fields(&text), [["\u{feff}g", "t"]]);
    }

    #[test]
    fn what_has_far_too_many_columns_is_not_read_on() {
        assert_eq!(parse(&format!("a\n{}", ",".repeat(1 << 20))).unwrap_err(), "line 2: it has more than 64 columns");
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
