"""The style of the page of a `MissingReport`, and the page around it."""

STYLE = """
.skvnce-report {
  --back: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d8dee4;
  --card: #f6f8fa; --bar: #2166ac; --gap: #b2182b; --rest: #e3e7ec;
  container-type: inline-size; color-scheme: light;
  background: var(--back); color: var(--text); padding: 1rem;
  font: 15px/1.5 system-ui, sans-serif; text-align: left;
}
@media (prefers-color-scheme: dark) {
  .skvnce-report {
    --back: #14181d; --text: #e6e9ed; --soft: #a0aab5; --line: #343b44;
    --card: #1c2229; --bar: #6aa5dd; --gap: #ef8175; --rest: #2d343d;
    color-scheme: dark;
  }
}
.skvnce-report * { box-sizing: border-box; }
.skvnce-report > div { max-width: 1200px; margin: 0 auto; }
.skvnce-report :is(h1, h2, h3, p, li, td, th, bdi, code) { overflow-wrap: anywhere; }
.skvnce-report h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 .25rem; }
.skvnce-report h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
.skvnce-report h3 { font-size: 1rem; margin: 0; }
.skvnce-report p { margin: .4rem 0; max-width: 85ch; }
.skvnce-report .soft { color: var(--soft); font-size: .87rem; }
.skvnce-report pre {
  background: var(--card); color: var(--text); border: 1px solid var(--line);
  border-radius: 6px; padding: .8rem; margin: .6rem 0; font-size: .87rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
.skvnce-report .answer { border-left: 4px solid var(--bar); padding-left: 1rem; }
.skvnce-report ul { margin: .5rem 0; padding: 0; list-style: none; }
.skvnce-report .warn li {
  border-left: 4px solid var(--gap); background: var(--card); margin: .5rem 0;
  padding: .5rem .8rem; max-width: 95ch;
}
.skvnce-report .cards {
  display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 260px), 1fr));
}
.skvnce-report .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .7rem .8rem; min-width: 0;
}
.skvnce-report svg { display: block; width: 100%; }
.skvnce-report .ends {
  display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 .5rem;
}
.skvnce-report .ends span { white-space: nowrap; }
.skvnce-report .long { display: grid; grid-template-columns: 1fr 1fr; }
.skvnce-report .long span { white-space: normal; }
.skvnce-report .long :last-child { text-align: right; }
.skvnce-report .long :nth-child(2) {
  order: 1; grid-column: 1 / -1; text-align: center;
}
.skvnce-report .levels li {
  display: grid; grid-template-columns: 8.5em 1fr 3em; gap: .5rem;
  align-items: center; font-size: .87rem; line-height: 1.35;
}
.skvnce-report .levels li > :first-child {
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2;
  overflow: hidden;
}
.skvnce-report .levels li > :last-child { text-align: right; }
.skvnce-report table { border-collapse: collapse; width: 100%; margin: .6rem 0;
  font-size: .93rem; background: none; color: inherit; table-layout: auto; }
.skvnce-report tr { background: none; }
.skvnce-report :is(th, td) {
  text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border: 0; border-bottom: 1px solid var(--line); white-space: normal;
}
.skvnce-report th { color: var(--soft); font-weight: 600; font-size: .87rem; }
.skvnce-report .scale { display: grid; grid-template-columns: 7rem 1fr; gap: .6rem;
  align-items: center; min-width: 10rem; max-width: 14rem; }
.skvnce-report .strip { min-width: 8rem; max-width: 24rem; padding-top: .25rem; }
.skvnce-report a { color: var(--bar); }
.skvnce-report nav a { display: inline-block; margin-right: 1rem; }
@container (max-width: 640px) {
  .skvnce-report thead { display: none; }
  .skvnce-report :is(table, tbody, tr) { display: block; }
  .skvnce-report td {
    display: grid; grid-template-columns: 8.5em 1fr; gap: .6rem; border: 0;
    padding: .15rem 0;
  }
  .skvnce-report td::before {
    content: attr(data-label); color: var(--soft); font-size: .87rem;
  }
  .skvnce-report td.none { display: none; }
  .skvnce-report tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .skvnce-report .scale { grid-template-columns: 6.5rem 1fr; min-width: 0; }
}
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Report of a table with missing values</title>
<style>
body {{ margin: 0; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14181d; }} }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
