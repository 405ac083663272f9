import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Types;

/**
 * One commit of data files, equality deletes, position deletes and deletion vectors, as a streaming writer makes
 * it: an append where nothing is deleted, else a row delta. Positions are those of the table as it was "planned".
 */
final class Commits {
  private final BaseTable table;
  private final String branch;
  private final Snapshot start;
  private final List<DataFile> data = new ArrayList<>();
  private final List<DeleteFile> deletes = new ArrayList<>();
  private final List<DeleteFile> replaced = new ArrayList<>();
  private final List<String> referenced = new ArrayList<>();
  private final Map<String, FileScanTask> live = new HashMap<>();

  private Commits(BaseTable table, BaseTable planned, String branch) throws IOException {
    this.table = table;
    this.branch = branch;
    this.start = planned.snapshot(branch);
    TableScan scan = planned.newScan();
    if (start != null) {
      scan = scan.useRef(branch);
    }
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      tasks.forEach(task -> live.put(task.file().location(), task));
    }
  }

  static BaseTable commit(JsonNode command, List<String> paths) throws IOException {
    BaseTable table = PointerOperations.table(command.get("metadata").asText());
    BaseTable planned = PointerOperations.table(command.path("planned").asText(command.get("metadata").asText()));
    Commits commit = new Commits(table, planned, command.path("branch").asText("main"));
    for (JsonNode group : command.path("data")) {
      commit.addData(group);
    }
    for (JsonNode group : command.path("deletes")) {
      commit.addEqualityDelete(group);
    }
    for (JsonNode group : command.path("positions")) {
      commit.addPositionDelete(group);
    }
    if (command.has("vectors")) {
      commit.addVectors(command.get("vectors"));
    }
    SnapshotUpdate<?> update = commit.update();
    update.toBranch(commit.branch);
    update.commit();
    commit.data.forEach(file -> paths.add(file.location()));
    return table;
  }

  private SnapshotUpdate<?> update() {
    if (deletes.isEmpty()) {
      AppendFiles append = table.newAppend();
      data.forEach(append::appendFile);
      return append;
    }
    RowDelta delta = table.newRowDelta();
    data.forEach(delta::addRows);
    deletes.forEach(delta::addDeletes);
    replaced.forEach(delta::removeDeletes);
    if (start != null) {
      delta.validateFromSnapshot(start.snapshotId()).validateDeletedFiles();
      delta.validateDataFilesExist(referenced);
    }
    return delta;
  }

  /** {rows, spec?, format?}: one file for each partition that the rows fall in. */
  private void addData(JsonNode group) throws IOException {
    List<Record> rows = new ArrayList<>();
    group.get("rows").forEach(row -> rows.add(Values.record(table.schema().asStruct(), row)));
    FileFormat format = FileFormat.fromString(group.path("format").asText("parquet"));
    data.addAll(write(table, spec(group), format, rows));
  }

  /** {columns, written, rows, spec?, partition?, format?}: one file; its rows hold the columns that are written. */
  private void addEqualityDelete(JsonNode group) throws IOException {
    List<String> columns = names(group.get("columns"));
    Schema rowSchema = inOrder(table.schema(), names(group.get("written")));
    int[] ids = columns.stream().mapToInt(name -> table.schema().findField(name).fieldId()).toArray();
    FileFormat format = FileFormat.fromString(group.path("format").asText("parquet"));
    PartitionSpec spec = spec(group);
    StructLike partition = partition(spec, group.get("partition"));
    var factory =
        new GenericFileWriterFactory.Builder(table)
            .deleteFileFormat(format)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(rowSchema)
            .build();
    var writer = factory.newEqualityDeleteWriter(files(table, format).newOutputFile(spec, partition), spec, partition);
    try (writer) {
      group.get("rows").forEach(row -> writer.write(Values.record(rowSchema.asStruct(), row)));
    }
    deletes.add(writer.toDeleteFile());
  }

  /** [[file, [position…]]…], sorted: one position delete file, under the spec and partition of its first data file. */
  private void addPositionDelete(JsonNode group) throws IOException {
    DataFile first = dataFile(group.get(0).get(0));
    PartitionSpec spec = table.specs().get(first.specId());
    var factory = new GenericFileWriterFactory.Builder(table).deleteFileFormat(FileFormat.PARQUET).build();
    var output = files(table, FileFormat.PARQUET).newOutputFile(spec, first.partition());
    var writer = factory.newPositionDeleteWriter(output, spec, first.partition());
    PositionDelete<Record> delete = PositionDelete.create();
    try (writer) {
      for (JsonNode entry : group) {
        String path = dataFile(entry.get(0)).location();
        entry.get(1).forEach(position -> writer.write(delete.set(path, position.asLong())));
      }
    }
    deletes.add(writer.toDeleteFile());
  }

  /** [[file, [position…]]…]: one Puffin file with a vector for each, each merged with the deletes it replaces. */
  private void addVectors(JsonNode group) throws IOException {
    var writer = new BaseDVFileWriter(files(table, FileFormat.PUFFIN), this::previous);
    try (writer) {
      for (JsonNode entry : group) {
        DataFile file = dataFile(entry.get(0));
        PartitionSpec spec = table.specs().get(file.specId());
        entry.get(1).forEach(pos -> writer.delete(file.location(), pos.asLong(), spec, file.partition()));
      }
    }
    deletes.addAll(writer.result().deleteFiles());
    replaced.addAll(writer.result().rewrittenDeleteFiles());
  }

  private PositionDeleteIndex previous(String path) {
    if (!live.containsKey(path)) {
      return null;
    }
    List<DeleteFile> files =
        live.get(path).deletes().stream().filter(file -> file.content() == FileContent.POSITION_DELETES).toList();
    var loader = new BaseDeleteLoader(file -> table.io().newInputFile(file));
    return files.isEmpty() ? null : loader.loadPositionDeletes(files, path);
  }

  /** A path that is live in the table, or the number of a file among those of this commit. */
  private DataFile dataFile(JsonNode file) {
    if (file.isInt()) {
      return data.get(file.asInt());
    }
    referenced.add(file.asText());
    return live.get(file.asText()).file();
  }

  private PartitionSpec spec(JsonNode group) {
    return group.has("spec") ? table.specs().get(group.get("spec").asInt()) : table.spec();
  }

  private StructLike partition(PartitionSpec spec, JsonNode values) {
    Types.StructType type = spec.partitionType();
    PartitionData partition = new PartitionData(type);
    for (int i = 0; i < type.fields().size(); i++) {
      partition.set(i, Values.internal(type.fields().get(i).type(), values.get(i)));
    }
    return partition;
  }

  /** One data file for each partition of the spec that the rows fall in, in the order they are met. */
  static List<DataFile> write(BaseTable table, PartitionSpec spec, FileFormat format, Iterable<Record> rows)
      throws IOException {
    PartitionKey key = new PartitionKey(spec, table.schema());
    InternalRecordWrapper wrapper = new InternalRecordWrapper(table.schema().asStruct());
    Map<PartitionKey, List<Record>> groups = new LinkedHashMap<>();
    for (Record row : rows) {
      key.partition(wrapper.wrap(row));
      groups.computeIfAbsent(key.copy(), ignored -> new ArrayList<>()).add(row);
    }
    var factory = new GenericFileWriterFactory.Builder(table).dataFileFormat(format).build();
    List<DataFile> files = new ArrayList<>();
    for (var group : groups.entrySet()) {
      var writer = factory.newDataWriter(files(table, format).newOutputFile(spec, group.getKey()), spec, group.getKey());
      try (writer) {
        group.getValue().forEach(writer::write);
      }
      files.add(writer.toDataFile());
    }
    return files;
  }

  private static OutputFileFactory files(BaseTable table, FileFormat format) {
    return OutputFileFactory.builderFor(table, 1, 1).format(format).operationId(UUID.randomUUID().toString()).build();
  }

  /** A schema of the columns in the order given, or in the table's where one of them is nested. */
  private static Schema inOrder(Schema schema, List<String> names) {
    boolean nested = names.stream().anyMatch(name -> name.contains("."));
    return nested ? schema.select(names) : new Schema(names.stream().map(schema::findField).toList());
  }

  private static List<String> names(JsonNode array) {
    List<String> names = new ArrayList<>();
    array.forEach(name -> names.add(name.asText()));
    return names;
  }
}
