# cmake -DTEMPLATE=x.cpp.in -DOUTPUT=x.cpp -DROOT=folder -DFILES="a|b" -P embed.cmake
# Writes OUTPUT from TEMPLATE with @FILES@ replaced by one {"name", R"(text)"} a file; names are relative to ROOT.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "|" ";" files "${FILES}")
set(FILES "")
foreach(file IN LISTS files)
  file(READ ${ROOT}/${file} text)
  string(APPEND FILES "    {\"${file}\", R\"embedded(${text})embedded\"},\n")
endforeach()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
