# Draws a terminal session as an SVG. The one in the README, of a cluster that "make up" made:
#   elastic up --detach --sample=false && export KUBECONFIG=$(elastic kubeconfig)
#   PACE=0 QUEUE=team-a docs/demo/play.sh | awk -f docs/demo/draw.awk >docs/demo/session.svg
BEGIN { wide = 118; y = 0 }

function line(text, style) {
  gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
  body = body sprintf("<text x=\"16\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", 28 + 17 * y++, style, text)
}

{
  gsub(/\t/, "        ")
  style = /^\$ / ? " class=\"typed\"" : ""
  if (style != "" && NR > 1) y += 0.4
  text = $0
  indent = match(text, /^[A-Z][a-z]+( by)? +/) ? RLENGTH : 4
  while (length(text) > wide) { # between words, the rest below the beginning
    for (cut = wide; cut > indent && substr(text, cut, 1) != " "; cut--);
    if (cut <= indent) cut = wide
    line(substr(text, 1, cut - 1) (style != "" ? " \\" : ""), style)
    text = sprintf("%" indent "s%s", "", substr(text, cut + 1))
  }
  line(text, style)
}

END {
  height = 34 + 17 * y
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"A terminal session\">\n", 32 + 7.25 * wide, height
  print "<style>text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d4d4d4}.typed{fill:#8fd0a8;font-weight:600}</style>"
  printf "<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#16181d\"/>\n%s</svg>\n", body
}
